// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// TPU-MLIR leaves out a scale and a bias of one element, whatever their values (U-120).
// WEIGHT s1 = 0.5
// WEIGHT t1 = 0.25

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x5x1xf32>) -> tensor<1x5x1xf32> {
    %x = "top.Input"(%in) : (tensor<1x5x1xf32>) -> tensor<1x5x1xf32> loc("x")
    %s1 = "top.Weight"() : () -> tensor<1xf32> loc("s1")
    %t1 = "top.Weight"() : () -> tensor<1xf32> loc("t1")
    %y = "top.LayerNorm"(%x, %s1, %t1) {axis = 2 : i64, eps = 1.000000e-05 : f64, normalized_shape = [1]} : (tensor<1x5x1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x5x1xf32> loc("y")
    func.return %y : tensor<1x5x1xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x5x1xf32>) -> tensor<1x5x1xf32> loc("x")
// CHECK-NEXT: %0 = "top.None"() : () -> none loc(unknown)
// CHECK-NEXT: %1 = "top.None"() : () -> none loc(unknown)
// CHECK-NEXT: %y = "top.LayerNorm"(%x, %0, %1) {axis = 2 : si32, eps = 1.000000e-05 : f64, normalized_shape = [1 : i64]}{{.*}} loc("y")
// CHECK-NEXT: func.return %y : tensor<1x5x1xf32>
