// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// The parts of a normalisation by the root of the mean of squares become an RMSNorm.
// WEIGHT row = 1 2 3 4 5 6

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %a = "top.Mul"(%x, %x) : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("a")
    %b0 = "top.Reduce"(%a) {axes = [2], mode = "ReduceMean", keepdims = true} : (tensor<2x4x6xf32>) -> tensor<2x4x1xf32> loc("b0")
    %d = "top.AddConst"(%b0) {const_val = 9.9999999747524271e-07 : f64} : (tensor<2x4x1xf32>) -> tensor<2x4x1xf32> loc("d")
    %e = "top.Sqrt"(%d) : (tensor<2x4x1xf32>) -> tensor<2x4x1xf32> loc("e")
    %f = "top.Reciprocal"(%e) {const_val = 1.000000e+00 : f64} : (tensor<2x4x1xf32>) -> tensor<2x4x1xf32> loc("f")
    %h = "top.Mul"(%x, %f) : (tensor<2x4x6xf32>, tensor<2x4x1xf32>) -> tensor<2x4x6xf32> loc("h")
    %row = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
    %y = "top.Mul"(%row, %h) : (tensor<1x1x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %row = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
// CHECK-NEXT: %y = "top.RMSNorm"(%x, %row) {eps = 9.9999999747524271e-07 : f64}{{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x6xf32>
