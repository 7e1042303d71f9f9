// RUN: tpusim opt -p 'processor-assign{chip=bm1684 mode=F32},processor-top-optimize' %s | filecheck %s
//
// An RMSNorm becomes its parts.
// WEIGHT row = 1 2 3 4 5 6

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %row = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
    %y = "top.RMSNorm"(%x, %row) {eps = 9.9999999747524271e-07 : f64} : (tensor<2x4x6xf32>, tensor<1x1x6xf32>) -> tensor<2x4x6xf32> loc("y")
    func.return %y : tensor<2x4x6xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %row = "top.Weight"() : () -> tensor<1x1x6xf32> loc("row")
// CHECK-NEXT: %y = "top.Mul"(%x, %x) {{.*}} -> tensor<2x4x6xf32> loc("y_squares")
// CHECK-NEXT: %y_1 = "top.Reduce"(%y) {axes = [2 : i64], keepdims = true, mode = "ReduceMean"}{{.*}} -> tensor<2x4x1xf32> loc("y_mean")
// CHECK-NEXT: %y_2 = "top.AddConst"(%y_1) {const_val = 9.9999999747524271e-07 : f64{{.*}} -> tensor<2x4x1xf32> loc("y_shifted")
// CHECK-NEXT: %y_3 = "top.Sqrt"(%y_2) {{.*}} -> tensor<2x4x1xf32> loc("y_root")
// CHECK-NEXT: %y_4 = "top.Reciprocal"(%y_3) {const_val = 1.000000e+00 : f64}{{.*}} -> tensor<2x4x1xf32> loc("y_reciprocal")
// CHECK-NEXT: %y_5 = "top.Mul"(%x, %y_4) {{.*}} -> tensor<2x4x6xf32> loc("y_normalised")
// CHECK-NEXT: %y_6 = "top.Mul"(%y_5, %row) {{.*}} -> tensor<2x4x6xf32> loc("y")
// CHECK-NEXT: func.return %y_6 : tensor<2x4x6xf32>
