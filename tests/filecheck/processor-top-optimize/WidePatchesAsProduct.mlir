// RUN: tpusim opt -p 'processor-assign{chip=cv183x mode=BF16},processor-top-optimize' %s | filecheck %s
//
// A Conv whose windows lie side by side and are larger than 15 in both directions becomes a MatMul with a row for
// each window.
// WEIGHT filter = 1 2 3

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x32x32xf32>) -> tensor<1x4x2x2xf32> {
    %x = "top.Input"(%in) : (tensor<1x4x32x32xf32>) -> tensor<1x4x32x32xf32> loc("x")
    %filter = "top.Weight"() : () -> tensor<4x4x16x16xf32> loc("filter")
    %none = "top.None"() : () -> none
    %y = "top.Conv"(%x, %filter, %none) {kernel_shape = [16, 16], strides = [16, 16], pads = [0, 0, 0, 0]} : (tensor<1x4x32x32xf32>, tensor<4x4x16x16xf32>, none) -> tensor<1x4x2x2xf32> loc("y")
    func.return %y : tensor<1x4x2x2xf32>
  }
}

// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x32x32xf32>) -> tensor<1x4x32x32xf32> loc("x")
// CHECK-NEXT: %filter = "top.Weight"() : () -> tensor<4x4x16x16xf32> loc("filter")
// CHECK-NEXT: %none = "top.None"() {{.*}} -> none
// CHECK-NEXT: %y = "top.Reshape"(%x) {shape = [1 : i64, 4 : i64, 2 : i64, 16 : i64, 2 : i64, 16 : i64]}{{.*}} -> tensor<1x4x2x16x2x16xf32> loc("y_reshape0")
// CHECK-NEXT: %y_1 = "top.Permute"(%y) {order = [0 : i64, 1 : i64, 2 : i64, 4 : i64, 3 : i64, 5 : i64]}{{.*}} -> tensor<1x4x2x2x16x16xf32> loc("y_permute0")
// CHECK-NEXT: %y_2 = "top.Permute"(%y_1) {order = [0 : i64, 2 : i64, 3 : i64, 1 : i64, 4 : i64, 5 : i64]}{{.*}} -> tensor<1x2x2x4x16x16xf32> loc("y_permute1")
// CHECK-NEXT: %y_3 = "top.Reshape"(%y_2) {shape = [1 : i64, 2 : i64, 2 : i64, 1024 : i64]}{{.*}} -> tensor<1x2x2x1024xf32> loc("y_reshape1")
// CHECK-NEXT: %y_4 = "top.Weight"() : () -> tensor<1024x4xf32> loc("y_filter")
// CHECK-NEXT: %y_5 = "top.MatMul"(%y_3, %y_4, %none) {left_transpose = false, right_transpose = false{{.*}} -> tensor<1x2x2x4xf32> loc("y_matmul")
// CHECK-NEXT: %y_6 = "top.Permute"(%y_5) {order = [0 : i64, 3 : i64, 1 : i64, 2 : i64]}{{.*}} -> tensor<1x4x2x2xf32> loc("y")
// CHECK-NEXT: func.return %y_6 : tensor<1x4x2x2xf32>
